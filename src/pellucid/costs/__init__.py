"""What an operation costs: shapes in, operations and bytes out."""
