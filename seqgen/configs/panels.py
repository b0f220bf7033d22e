"""The headings that help and the documentation list options under, in their order."""

ARGUMENTS, WHAT, MODEL, TEXT, BUDGET = "Arguments", "What to train", "Model", "Text", "Budget"
OPTIMISATION, SEARCH, LENGTH = "Optimisation", "Search", "Length and number"
FILTERS, SCORES, TESTS, MEASURED = "Filters", "Scores", "Significance", "What to measure"
ATTENTION, SAVING, OUTPUT = "Attention to the source", "Saving", "Output"
MACHINE, OTHER = "Machine", "Other options"
PANELS = (
    *(ARGUMENTS, WHAT, MEASURED, MODEL, TEXT, BUDGET, OPTIMISATION, SEARCH, LENGTH, FILTERS),
    *(SCORES, TESTS, ATTENTION, SAVING, OUTPUT, MACHINE, OTHER),
)
