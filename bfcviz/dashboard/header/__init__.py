"""The header of a dashboard: verdict, totals, and what led to the step.

Input: the model at a step. Output: one widget. May import model, figures and the parts of report/html/.
"""
