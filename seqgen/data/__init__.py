"""Reading text, holding part of it out, and dealing it into batches."""
