"""Model families, one short file each, written once over the operations."""
