"""``python -m services.gateway``."""

if __name__ == "__main__":
    from starsd.process.early import end_on_sigterm

    end_on_sigterm()
    from services.gateway.main import main

    main()
