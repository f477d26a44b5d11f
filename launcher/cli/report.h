#pragma once

#include <string>
#include <string_view>

#include "launcher/cli/report_data.h"
#include "launcher/cli/report_plan.h"

namespace strait::cli {

// Of the page: report_page.css and report_page.js.
extern const std::string_view kReportStyle;
extern const std::string_view kReportScript;

// A self-contained HTML page: what the run did and how it ended, and as JSON what its script draws:
// charts over the steps, one step as a timeline, links, replicas, events. Recipe, plan, build,
// machines and the last step are folded. It requests nothing, and its policy forbids it to.
// `measured`: from the trace, which a run has at its end; without rows before. Pure.
std::string report_page(const ReportData& data, const ReportPlan& plan,
                        const StepTimeline& measured = {});

}  // namespace strait::cli
