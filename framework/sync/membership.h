#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace strait::sync {

// Which replicas of a stage take part, as every one of them knows it. A new epoch, a new set.
struct Membership {
  std::uint32_t epoch = 0;
  std::vector<std::uint32_t> members;  // replica numbers, ascending
  std::size_t mine = 0;                // this process's place among them

  std::size_t count() const { return members.size(); }
  bool operator==(const Membership&) const = default;
};

// From this epoch on this replica takes part, too, which comes from nowhere: it has to be told all
// that the others know.
struct Arrival {
  std::uint32_t epoch = 0;
  std::uint32_t replica = 0;
};

}  // namespace strait::sync
