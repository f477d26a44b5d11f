

#include "launcher/compute/verbs.h"
#include "launcher/hosts/host_inspection.h"
#include "launcher/planner/plan_maker.h"
#include "launcher/run/hosts_session.h"
#include "launcher/worker/compute_device.h"

namespace strait::compute {
namespace {

// One line of the report: what passed, or the sentence of what failed.
std::optional<plan::Plan> plan_or_result(const recipe::Recipe& recipe,
                                         std::vector<hosts::CheckResult>& results) {
  try {
    plan::Plan plan = planner::make_plan(recipe).plan;
    results.push_back({hosts::CheckResult::Kind::ok, base::ExitCode::done, "model",
                       fmt::format("{} in {} {}", recipe.model.path, plan.processes.size(),
                                   plan.processes.size() == 1 ? "process" : "processes")});
    results.push_back({hosts::CheckResult::Kind::ok, base::ExitCode::done, "data",
                       fmt::format("{}: {}", data::paths_of(recipe.data.train),
                                   base::counted(plan.train.rows, "row"))});
    return plan;
  } catch (const std::exception& error) {
    const base::Failure failure = base::describe_failure(error);
    results.push_back({hosts::CheckResult::Kind::wrong, failure.code, "plan", failure.text});
    return std::nullopt;
  }
}

const char* word_for(hosts::CheckResult::Kind kind) {
  switch (kind) {
    case hosts::CheckResult::Kind::ok:
      return "ok";
    case hosts::CheckResult::Kind::note:
      return "note";
    case hosts::CheckResult::Kind::wrong:
      return "wrong";
  }
  return "?";
}

void print_results(const std::vector<hosts::CheckResult>& results) {
  std::size_t widest = 0;
  for (const hosts::CheckResult& result : results) widest = std::max(widest, result.where.size());
  for (const hosts::CheckResult& result : results) {
    fmt::print("{:<5}  {:<{}}  {}\n", word_for(result.kind), base::printable(result.where), widest,
               base::printable(result.text));
  }
}

void print_results_json(const std::vector<hosts::CheckResult>& results) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const hosts::CheckResult& result : results) {
    list.push_back({{"kind", word_for(result.kind)},
                    {"code", number(result.code)},
                    {"where", result.where},
                    {"text", result.text}});
  }
  fmt::print("{}\n", list.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

bool is_wrong(const hosts::CheckResult& result) {
  return result.kind == hosts::CheckResult::Kind::wrong;
}

void add_this_machine(std::vector<hosts::CheckResult>& results) {
  for (const worker::DeviceCheck& check : worker::check_devices()) {
    results.push_back({check.works ? hosts::CheckResult::Kind::ok : hosts::CheckResult::Kind::wrong,
                       check.works ? base::ExitCode::done : base::ExitCode::internal,
                       "this machine", check.text});
  }
}

// Starts the agents of the plan's hosts, lets each pair that shares a link try its paths as a run
// does, and ends the agents. Not for a local plan.
std::vector<hosts::CheckResult> check_links(const plan::Plan& plan) {
  try {
    const run::ModelQuestions model = model_questions();
    run::HostsSession session(plan, model, [](const std::string&) {});
    return judge_links(session.plan(), session.hosts().routes(), session.hosts().notes());
  } catch (const base::UserError& error) {
    return {{hosts::CheckResult::Kind::wrong, error.code(), "links", error.what()}};
  } catch (const net::LinkError& error) {
    return {{hosts::CheckResult::Kind::wrong, base::exit_code_of(error), "links", error.what()}};
  }
}

std::vector<hosts::CheckResult> examine_run(const cli::RunOptions& options) {
  const recipe::Recipe recipe = read_recipe(options);
  std::vector<hosts::CheckResult> results = {
      {hosts::CheckResult::Kind::ok, base::ExitCode::done, "recipe",
       fmt::format("{} (strait {})", options.recipe.string(), base::build_id())}};
  const std::optional<plan::Plan> plan = plan_or_result(recipe, results);
  const auto of_hosts =
      hosts::check_hosts(recipe, plan ? hosts::needs_of(*plan) : std::vector<hosts::HostNeed>{});
  results.insert(results.end(), of_hosts.begin(), of_hosts.end());
  // Over hosts the launcher computes nothing, so its devices do not matter.
  if (recipe.hosts.backend == recipe::BackendKind::local) add_this_machine(results);
  // Only if all is well so far: it starts agents, which a host with a finding above may refuse.
  if (std::ranges::none_of(results, is_wrong) && recipe.hosts.backend == recipe::BackendKind::ssh &&
      plan->hosts.size() > 1) {
    const auto of_links = check_links(*plan);
    results.insert(results.end(), of_links.begin(), of_links.end());
  }
  return results;
}

std::vector<hosts::CheckResult> examine_this_machine(const cli::RunOptions& options) {
  if (!options.overrides.empty()) {
    throw base::UserError(base::ExitCode::bad_input,
                          "--set changes a recipe, and none is named; write: " +
                              base::command_name() + " doctor RECIPE --set KEY=VALUE");
  }
  std::vector<hosts::CheckResult> results = {{hosts::CheckResult::Kind::ok, base::ExitCode::done,
                                              "this machine",
                                              fmt::format("strait {}", base::build_id())}};
  add_this_machine(results);
  return results;
}

}  // namespace

std::vector<hosts::CheckResult> judge_links(const plan::Plan& plan,
                                            const std::vector<hosts::LinkRoute>& routes,
                                            const std::vector<run::Event>& notes) {
  std::vector<hosts::CheckResult> results;
  results.reserve(notes.size() + routes.size());
  for (const run::Event& note : notes) {
    results.push_back({hosts::CheckResult::Kind::note, base::ExitCode::done, "links", note.text});
  }
  // One line for all links of one route.
  std::map<std::tuple<std::size_t, std::size_t, std::string>, std::vector<std::string>> groups;
  for (std::size_t i = 0; i < routes.size(); ++i) {
    const plan::Plan::Link& link = plan.links[i];
    const hosts::LinkRoute& route = routes[i];
    const std::size_t binds = plan.process(route.binds).host_index;
    const std::size_t dials =
        plan.process(route.binds == link.listens ? link.connects : link.listens).host_index;
    if (route.relayed || binds == dials) continue;
    groups[{dials, binds, route.address}].push_back(link.name);
  }
  for (const auto& [route, links] : groups) {
    const auto& [dials, binds, address] = route;
    results.push_back({hosts::CheckResult::Kind::ok, base::ExitCode::done, "links",
                       fmt::format("{} reaches {} at {}: {}", plan.hosts[dials].name,
                                   plan.hosts[binds].name, address, fmt::join(links, ", "))});
  }
  return results;
}

base::ExitCode perform(const cli::DoctorFlags& flags) {
  const std::vector<hosts::CheckResult> results =
      flags.run.recipe.empty() ? examine_this_machine(flags.run) : examine_run(flags.run);
  flags.run.json ? print_results_json(results) : print_results(results);
  const auto first = std::ranges::find_if(results, is_wrong);
  return first == results.end() ? base::ExitCode::done : first->code;
}

}  // namespace strait::compute
