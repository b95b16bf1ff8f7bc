"""The parts of the HTML report, without what reads traces and prices.

Begin with parts, what a page is made of, and page, which writes it. Each other module makes the parts of one section.
"""
