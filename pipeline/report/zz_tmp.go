package report

func PlanPage(b Build) string     { return "" }
func QuestionPage(b Build) string { return "" }
