"""``python -m services.target``. Its loop's process imports this module too, and needs no front."""

if __name__ == "__main__":
    from starsd.process.early import end_on_sigterm

    end_on_sigterm()
    from services.target.main import main

    main()
