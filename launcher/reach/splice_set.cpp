#include "launcher/reach/splice_set.h"

#include <utility>

namespace strait::reach {

void SpliceSet::drop(const std::string& name) {
  std::erase_if(open_, [&](const Named& one) { return one.name == name; });
}

void SpliceSet::append_to(std::vector<pollfd>& polls) const {
  for (const Named& one : open_) {
    const auto waits = one.splice.waits_for();
    polls.insert(polls.end(), waits.begin(), waits.end());
  }
}

void SpliceSet::move(std::span<const pollfd> polls) {
  std::vector<Named> kept;
  kept.reserve(open_.size());
  for (std::size_t i = 0; i < open_.size(); ++i) {
    Named& one = open_[i];
    const bool ready = polls[2 * i].revents != 0 || polls[2 * i + 1].revents != 0;
    const bool goes_on = !ready || one.splice.move();
    bytes_[one.name] += one.splice.bytes() - std::exchange(one.counted, one.splice.bytes());
    if (goes_on) kept.push_back(std::move(one));
  }
  open_ = std::move(kept);
}

}  // namespace strait::reach
