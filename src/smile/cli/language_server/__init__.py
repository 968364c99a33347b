"""`smile lsp`: a language server for SmileSQL and MMPL."""
