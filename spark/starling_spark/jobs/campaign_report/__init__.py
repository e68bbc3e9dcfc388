"""The job `campaign_report`: funnels and lifts of campaigns, over the whole history."""
