"""The states that the segmenter keeps, and their form for `starling state inspect`. No topic and no plan."""
