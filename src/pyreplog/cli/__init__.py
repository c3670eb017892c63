"""The command ``replog``: one file per subcommand, over the same public faces that a program uses."""
