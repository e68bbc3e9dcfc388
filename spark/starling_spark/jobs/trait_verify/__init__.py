"""The job `trait_verify`: audits the published values of a computed trait against the history."""
