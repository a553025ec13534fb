"""``python -m services.target``. Its loop's process imports this module too, and needs no front."""

if __name__ == "__main__":
    from services.target.main import main

    main()
