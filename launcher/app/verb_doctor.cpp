#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <exception>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "launcher/app/link_checkup.h"
#include "launcher/app/run_options.h"
#include "launcher/app/verbs.h"
#include "launcher/base/build_id.h"
#include "launcher/base/errors.h"
#include "launcher/base/text.h"
#include "launcher/hosts/diagnostics.h"
#include "launcher/planner/plan_maker.h"
#include "launcher/worker/compute_device.h"

namespace strait::app {
namespace {

// One line of the report: what passed, or the sentence of what failed.
std::optional<plan::Plan> plan_or_finding(const recipe::Recipe& recipe,
                                          std::vector<hosts::Finding>& findings) {
  try {
    plan::Plan plan = planner::make_plan(recipe).plan;
    findings.push_back({hosts::Finding::Kind::well, base::ExitCode::done, "model",
                        fmt::format("{} in {} {}", recipe.model.path, plan.processes.size(),
                                    plan.processes.size() == 1 ? "process" : "processes")});
    findings.push_back(
        {hosts::Finding::Kind::well, base::ExitCode::done, "data",
         fmt::format("{}: {} rows", recipe::paths_of(recipe.data.train), plan.train.rows)});
    return plan;
  } catch (const std::exception& error) {
    const base::Failure failure = base::describe_failure(error);
    findings.push_back({hosts::Finding::Kind::wrong, failure.code, "plan", failure.text});
    return std::nullopt;
  }
}

const char* word_for(hosts::Finding::Kind kind) {
  switch (kind) {
    case hosts::Finding::Kind::well:
      return "ok";
    case hosts::Finding::Kind::note:
      return "note";
    case hosts::Finding::Kind::wrong:
      return "wrong";
  }
  return "?";
}

void print_findings(const std::vector<hosts::Finding>& findings) {
  std::size_t widest = 0;
  for (const hosts::Finding& finding : findings) widest = std::max(widest, finding.where.size());
  for (const hosts::Finding& finding : findings) {
    fmt::print("{:<5}  {:<{}}  {}\n", word_for(finding.kind), base::printable(finding.where),
               widest, base::printable(finding.text));
  }
}

void print_findings_json(const std::vector<hosts::Finding>& findings) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const hosts::Finding& finding : findings) {
    list.push_back({{"kind", word_for(finding.kind)},
                    {"code", number(finding.code)},
                    {"where", finding.where},
                    {"text", finding.text}});
  }
  fmt::print("{}\n", list.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

base::ExitCode examine(const RunOptions& options) {
  const recipe::Recipe recipe = read_recipe(options);
  std::vector<hosts::Finding> findings = {
      {hosts::Finding::Kind::well, base::ExitCode::done, "recipe",
       fmt::format("{} (strait {})", options.recipe.string(), base::build_id())}};
  const std::optional<plan::Plan> plan = plan_or_finding(recipe, findings);
  const auto of_hosts =
      hosts::check_hosts(recipe, plan ? hosts::needs_of(*plan) : std::vector<hosts::HostNeed>{});
  findings.insert(findings.end(), of_hosts.begin(), of_hosts.end());
  if (recipe.hosts.backend == recipe::BackendKind::local) {
    for (const worker::DeviceCheck& check : worker::check_devices()) {
      findings.push_back({check.works ? hosts::Finding::Kind::well : hosts::Finding::Kind::wrong,
                          check.works ? base::ExitCode::done : base::ExitCode::internal,
                          "this machine", check.text});
    }
  }
  const bool well = std::ranges::find(findings, hosts::Finding::Kind::wrong,
                                      &hosts::Finding::kind) == findings.end();
  if (well && recipe.hosts.backend == recipe::BackendKind::ssh && plan->hosts.size() > 1) {
    const auto of_links = check_links(*plan);
    findings.insert(findings.end(), of_links.begin(), of_links.end());
  }
  options.json ? print_findings_json(findings) : print_findings(findings);
  const auto first =
      std::ranges::find(findings, hosts::Finding::Kind::wrong, &hosts::Finding::kind);
  return first == findings.end() ? base::ExitCode::done : first->code;
}

}  // namespace

void add_doctor(CLI::App& cli, Command& command) {
  const auto options = std::make_shared<RunOptions>();
  CLI::App* verb =
      cli.add_subcommand("doctor", "check everything that a recipe needs; starts nothing");
  verb->add_option("recipe", options->recipe, "a recipe file")->required();
  add_run_options(verb, options);
  verb->callback([options, &command] { command = [options] { return examine(*options); }; });
}

}  // namespace strait::app
