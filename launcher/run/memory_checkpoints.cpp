#include "launcher/run/memory_checkpoints.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>

#include "framework/store/checkpoint.h"
#include "launcher/base/errors.h"

namespace strait::run {

std::vector<store::Step> needed_in_memory(const std::vector<store::Step>& held,
                                          const LossHistory& losses) {
  const std::optional<store::Step> good = store::newest_good(held, losses.good());
  if (!good) return {held.begin(), held.begin() + (held.empty() ? 0 : 1)};
  std::vector<store::Step> needed;
  std::ranges::copy_if(held, std::back_inserter(needed), [&](store::Step step) {
    return step == *good || (step > *good && !losses.is_seen(step));
  });
  return needed;
}

std::optional<store::Step> recover_from_memory(const RunDirectory& directory,
                                               MemoryCheckpoints& memory,
                                               const MemoryRecovery& with) {
  const std::vector<store::Step> committed = store::committed_steps(directory.path());
  const store::CheckpointList list =
      store::list_checkpoints(directory.path(), store::Verify::sizes, store::Part::all);
  std::optional<store::Step> here;
  if (!list.complete.empty()) here = list.complete.front().manifest.step;
  for (const MemoryCheckpoints::Held& one : memory.end_and_list()) {
    if (here && *here >= one.step) return std::nullopt;
    if (with.losses.is_bad(one.step)) continue;
    try {
      const auto folder = store::checkpoint_directory(directory.path(), one.step);
      memory.save(one, folder, with.give_up);
      if (!store::is_committed(folder)) with.commit(one.step, one.files);
      with.report(
          {"from_memory", fmt::format("the checkpoint of step {} was in memory only; it is on this "
                                      "machine's disk now",
                                      number(one.step))});
      if (!committed.empty() && one.step < committed.front()) return std::nullopt;
      return one.step;
    } catch (const std::exception& error) {
      const base::Failure failure = base::describe_failure(error);
      with.report(
          {"lost_memory", fmt::format("the checkpoint of step {} in memory cannot be used: {}",
                                      number(one.step), failure.text)});
      if (with.give_up()) return std::nullopt;
    }
  }
  return std::nullopt;
}

}  // namespace strait::run
