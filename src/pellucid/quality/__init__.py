"""What fewer bits cost: how well models predict a text, and how far they are from one another."""

from pellucid.quality.report import Report, report_json, report_of
from pellucid.quality.run import Settings, run_quality
from pellucid.quality.subjects import Subject, Text

__all__ = ["Report", "Settings", "Subject", "Text", "report_json", "report_of", "run_quality"]
