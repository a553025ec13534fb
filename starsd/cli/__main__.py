"""``python -m starsd.cli``: the same as ``starsd``."""

from starsd.cli.main import app

if __name__ == "__main__":
    app()
