"""`smile sql`: statements for a broker and for a database, typed at one prompt."""
