"""The parts of the HTML report. Begin with parts and page."""
