#include "launcher/verbs/verb_doctor.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "launcher/build_id.h"
#include "launcher/console/printable_text.h"
#include "launcher/failure.h"
#include "launcher/host/checkup.h"
#include "launcher/plan/plan_maker.h"
#include "launcher/plugin/plugin_file.h"
#include "launcher/probe/link_checkup.h"
#include "launcher/recipe/recipe_reader.h"

namespace strait::launcher {
namespace {

// The nouns of what went well, or the one sentence of what did not.
std::optional<Plan> plan_or_finding(const Recipe& recipe, std::vector<Symptom>& findings) {
  try {
    Plan plan = make_plan(recipe).plan;
    findings.push_back({Symptom::Kind::well, ExitCode::done, "model",
                        fmt::format("{} in {} {}", recipe.model.path, plan.processes.size(),
                                    plan.processes.size() == 1 ? "process" : "processes")});
    findings.push_back({Symptom::Kind::well, ExitCode::done, "data",
                        fmt::format("{}: {} rows", recipe.data.train, plan.train.rows)});
    return plan;
  } catch (const std::exception& error) {
    const Failure failure = describe_failure(error);
    findings.push_back({Symptom::Kind::wrong, failure.code, "plan", failure.text});
    return std::nullopt;
  }
}

const char* word_for(Symptom::Kind kind) {
  switch (kind) {
    case Symptom::Kind::well:
      return "ok";
    case Symptom::Kind::note:
      return "note";
    case Symptom::Kind::wrong:
      return "wrong";
  }
  return "?";
}

void print_findings(const std::vector<Symptom>& findings) {
  std::size_t widest = 0;
  for (const Symptom& finding : findings) widest = std::max(widest, finding.where.size());
  for (const Symptom& finding : findings) {
    fmt::print("{:<5}  {:<{}}  {}\n", word_for(finding.kind), printable(finding.where), widest,
               printable(finding.text));
  }
}

void print_findings_json(const std::vector<Symptom>& findings) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Symptom& finding : findings) {
    list.push_back({{"kind", word_for(finding.kind)},
                    {"code", number(finding.code)},
                    {"where", finding.where},
                    {"text", finding.text}});
  }
  fmt::print("{}\n", list.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

}  // namespace

ExitCode examine(const RunWords& words) {
  const Recipe recipe = read_recipe(words.recipe, words.overrides, load_plugins);
  std::vector<Symptom> findings = {
      {Symptom::Kind::well, ExitCode::done, "recipe",
       fmt::format("{} (strait {})", words.recipe.string(), build_id())}};
  const std::optional<Plan> plan = plan_or_finding(recipe, findings);
  const auto of_hosts = check_hosts(recipe, plan ? needs_of(*plan) : std::vector<HostNeed>{});
  findings.insert(findings.end(), of_hosts.begin(), of_hosts.end());
  const bool well =
      std::ranges::find(findings, Symptom::Kind::wrong, &Symptom::kind) == findings.end();
  if (well && recipe.hosts.backend == BackendKind::ssh && plan->hosts.size() > 1) {
    const auto of_links = check_links(*plan);
    findings.insert(findings.end(), of_links.begin(), of_links.end());
  }
  words.json ? print_findings_json(findings) : print_findings(findings);
  const auto first = std::ranges::find(findings, Symptom::Kind::wrong, &Symptom::kind);
  return first == findings.end() ? ExitCode::done : first->code;
}

}  // namespace strait::launcher
