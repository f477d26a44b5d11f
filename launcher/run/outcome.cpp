#include "launcher/run/outcome.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace strait::run {

nlohmann::ordered_json to_json(const Outcome& outcome) {
  using Json = nlohmann::ordered_json;
  const bool saved = outcome.stopped && outcome.code == base::ExitCode::done;
  const char* meaning = saved ? "stopped" : base::meaning(outcome.code);
  return {{"code", number(outcome.code)},
          {"meaning", meaning ? meaning : ""},
          {"cause", outcome.cause},
          {"culprit", outcome.culprit ? Json(outcome.culprit->text()) : Json(nullptr)},
          {"host", outcome.host},
          {"log_tail", outcome.log_tail},
          {"followers", outcome.followers},
          {"stopped", outcome.stopped},
          {"early", outcome.early},
          {"step", store::number(outcome.step)},
          {"checkpoint",
           outcome.checkpoint ? Json(store::number(*outcome.checkpoint)) : Json(nullptr)}};
}

bool RootCause::add(const Finding& finding) {
  if (!cause_) {
    cause_ = finding;
    return true;
  }
  // A process that lost its peer reports sooner than the exit of the peer is noticed.
  const bool better = cause_->effect && !finding.effect;
  const bool same = cause_->process == finding.process;
  Finding other = better ? std::exchange(*cause_, finding) : finding;
  // Later findings about a process follow from its first one.
  const bool known = std::any_of(followers_.begin(), followers_.end(),
                                 [&](const Finding& one) { return one.process == other.process; });
  if (!same && !known) followers_.push_back(std::move(other));
  if (better)
    std::erase_if(followers_, [&](const Finding& one) { return one.process == finding.process; });
  return better;
}

std::vector<std::string> RootCause::followers() const {
  std::vector<std::string> sentences;
  for (const Finding& one : followers_) sentences.push_back(one.sentence);
  return sentences;
}

}  // namespace strait::run
