"""``python -m services.draft``. Its loop's process imports this module too, and needs no front."""

if __name__ == "__main__":
    from services.draft.main import main

    main()
