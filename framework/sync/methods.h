#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/catalogue.h"
#include "framework/sync/sync_method.h"

namespace strait::sync {

// What a recipe's [sync] says, in this room's words. Each method reads what it knows.
struct SyncSettings {
  std::string method = "allreduce";
  std::uint64_t seed = 0;
  bool narrow_wire = false;       // allreduce, diloco: bfloat16 on the wire, sums in float32
  double random = 0.1;            // cocktail: the share of coordinates that a round looks at,
  double top = 0.2;               // the share of these that is sent, largest first,
  int bits = 4;                   // and the bits of a value; streaming_diloco too
  bool narrow_reference = false;  // cocktail: reference and residual in bfloat16
  std::int64_t every = 0;         // diloco, streaming_diloco, noloco: updates between rounds; 0:
                                  // what the method's authors use
  std::int64_t fragments = 4;     // streaming_diloco
  std::int64_t late = 1;          // streaming_diloco: updates until a result lands
  double blend = 0.5;             // streaming_diloco: the share of the own weights that stays
  // Of the outer step of cocktail, diloco, streaming_diloco and noloco; nothing: as suits the
  // method.
  std::optional<double> outer_learning_rate;
  std::optional<double> outer_momentum;
  std::int64_t rank = 2;    // powersgd
  std::int64_t warmup = 0;  // onebit_adam: steps with exact means before the second moment
                            // is frozen; 0: a fifteenth of the run
  std::int64_t steps = 0;   // of the run
  double beta1 = 0.9;       // onebit_adam: of the optimizer
  double beta2 = 0.95;      // likewise
};

// A method under the name that recipes use.
struct MethodOffer {
  std::string name;
  std::unique_ptr<SyncMethod> (*make)(const SyncSettings&) = nullptr;
  std::vector<std::string> reads;  // the keys of a recipe's [sync] that are of use to it
  // Bits in which it sends a value, for forecasts of methods that forecast.cpp does not know.
  double wire_bits = 32;
  // Why its replicas cannot go on without one of them, to follow "it"; empty: they can.
  std::string needs_all = {};
};

// All methods: those of this build, each a line in methods.cpp, and those of plugins.
Catalogue<MethodOffer>& methods();
std::vector<std::string> method_names();

// SyncError (setting) where there is no such method or a setting is out of its range; says which.
std::unique_ptr<SyncMethod> make_method(const SyncSettings& settings);

}  // namespace strait::sync
