#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "framework/store/sample.h"
#include "launcher/recipe/recipe.h"
#include "launcher/run/outcome.h"

namespace strait::run {

// hosts.restart, or the default of the backend.
std::int64_t restart_limit(const recipe::Recipe::Hosts& hosts);

// Whether a run that ended restarts by itself. It does after the loss of a process or host, and
// after an error of a disk or file server, which often pass; not after the user's stop, nor after
// failures that another start would meet again (bad input, a full disk, numbers that are not
// finite). So often in a row at most: a new checkpoint begins a new row, and without one the
// failure is taken for one that always comes back. Pure.
class RestartPolicy {
 public:
  // `limit` restarts in a row without a new checkpoint; 0: never.
  explicit RestartPolicy(std::int64_t limit) : limit_(limit) {}

  struct Decision {
    bool restart = false;
    std::int64_t number = 0;             // of this restart in its row
    std::chrono::milliseconds delay{0};  // before it begins
    bool exhausted = false;  // it would, had there not been so many in a row: first_failure()
  };
  // The run, or an attempt to restart it, ended so; `newest` is its newest complete checkpoint:
  // nullopt where there is none, or none can be seen now.
  Decision after(const Outcome& outcome, std::optional<store::Step> newest);

  // The first of the failures in the present row; only after after() was called.
  const Outcome& first_failure() const { return *first_; }
  std::int64_t limit() const { return limit_; }

 private:
  std::int64_t limit_;
  std::int64_t in_row_ = 0;
  std::optional<Outcome> first_;
  std::optional<store::Step> newest_;  // when first_ came
};

}  // namespace strait::run
