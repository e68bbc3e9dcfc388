"""The messenger: decides for each person which messages of campaigns are requested, and when."""
