#include "launcher/control/first_cause.h"

#include <algorithm>
#include <utility>

namespace strait::control {

bool FirstCause::add(const Finding& finding) {
  if (!cause_) {
    cause_ = finding;
    return true;
  }
  const bool better = cause_->effect && !finding.effect;
  const bool same = cause_->process == finding.process;
  Finding other = better ? std::exchange(*cause_, finding) : finding;
  // The first thing known of a process says most: its later words follow from that.
  const bool told = std::any_of(followers_.begin(), followers_.end(),
                                [&](const Finding& one) { return one.process == other.process; });
  if (!same && !told) followers_.push_back(std::move(other));
  if (better)
    std::erase_if(followers_, [&](const Finding& one) { return one.process == finding.process; });
  return better;
}

std::vector<std::string> FirstCause::followers() const {
  std::vector<std::string> sentences;
  for (const Finding& one : followers_) sentences.push_back(one.sentence);
  return sentences;
}

}  // namespace strait::control
