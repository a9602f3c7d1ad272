"""The kinds of packages that deploy/pack makes, a module each. None of them compiles or reads the clock."""
