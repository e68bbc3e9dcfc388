"""The job `audience_report`: how many people each segment had, day by day, who stayed, and which segments share them."""
