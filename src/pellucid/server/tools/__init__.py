"""Tool calls: how models write them, told from text as it comes."""
