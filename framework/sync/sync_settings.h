#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace strait::sync {

// What replicas do if a recipe names no method.
inline constexpr const char* kDefaultMethod = "allreduce";

// The settings of a method. Each method reads those that its offer lists and ignores the others.
struct SyncSettings {
  std::string method = kDefaultMethod;
  std::uint64_t seed = 0;

  // bfloat16 on the wire instead of float32; sums are float32.
  bool narrow_wire = false;

  // The share of coordinates that a round covers.
  double random = 0.1;
  // The share of these that is sent, largest first.
  double top = 0.2;
  // Of a value that is sent.
  int bits = 4;

  // Updates between rounds; 0: the default of the method's authors.
  std::int64_t every = 0;
  std::int64_t every_or(std::int64_t usual) const { return every == 0 ? usual : every; }
  // Parts of the model that are synchronised in turn.
  std::int64_t fragments = 4;
  // Updates until a result is applied.
  std::int64_t late = 1;

  // Of the outer step; nullopt: the method's default.
  std::optional<double> outer_learning_rate;
  std::optional<double> outer_momentum;

  // Of low-rank factors.
  std::int64_t rank = 2;

  // The members are a ReplicaGroup: allreduce plans sums in their places. Not a key of recipes; see
  // settings_in_group().
  bool in_group = false;
  // Members of a group divide the optimizer's state by owners_of(). Each updates the weights that
  // it owns, and then all gather them.
  bool share_state = false;

  // Rows of a step by replica, if they differ: contributions to a mean count by them.
  std::vector<std::int64_t> rows = {};

  // Of the run; 0: unknown.
  std::int64_t steps = 0;
  // Of the optimizer.
  double beta1 = 0.9;
  double beta2 = 0.95;
};

// Of the sums in a group, in a run with these settings.
SyncSettings settings_in_group(SyncSettings settings);

// `every`, or `usual` where it is not set. SyncError (setting) below 1.
std::int64_t checked_interval(const SyncSettings& settings, std::int64_t usual);

// How strongly a sparsifying method compresses: the three settings that `auto` chooses together.
struct Strength {
  double random = 0.1;
  double top = 0.2;
  int bits = 4;

  std::string text() const;  // "0.1/0.2/4"
  bool operator==(const Strength&) const = default;
};

}  // namespace strait::sync
