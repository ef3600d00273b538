"""What every other part speaks in: errors, specifications, requests, plans and outputs."""
