#pragma once

#include "launcher/cli/report_data.h"
#include "launcher/cli/report_plan.h"

namespace strait::cli {

// A page (html_page.h): what the run did and how it ended, and as JSON what its script draws:
// charts over the steps, one step as a timeline, links, replicas, events. Recipe, plan, build,
// machines and the last step are folded.
// `measured`: from the trace, which a run has at its end; without rows before. Pure.
std::string report_page(const ReportData& data, const ReportPlan& plan,
                        const StepTimeline& measured = {});

// The same for several runs, by name: their settings and results as a table ({"columns", "rows"}),
// and their curves over each other.
std::string compare_page(const std::vector<std::pair<std::string, ReportData>>& runs,
                         nlohmann::json table);

}  // namespace strait::cli
