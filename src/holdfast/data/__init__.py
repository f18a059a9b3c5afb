"""`from holdfast import data`: datasets of Arrow tables and files, split among workers."""
