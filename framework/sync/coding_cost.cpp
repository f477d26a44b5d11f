#include "framework/sync/coding_cost.h"

#include "framework/sync/diloco.h"
#include "framework/sync/noloco.h"
#include "framework/sync/streaming_diloco.h"

namespace strait::sync {
namespace {

constexpr CodingCost kPlainMeans = {.engine = 2.4, .trainer = 0.9};

// Of a pass over all values that is made once in so many steps.
CodingCost once_in(std::int64_t steps, std::int64_t unless_set, const CodingCost& pass) {
  const auto every = static_cast<double>(steps == 0 ? unless_set : steps);
  return {pass.engine / every, pass.trainer / every};
}

// By coordinates that a round looks at. To look at them takes most of it, so it matters little how
// many are sent; bare signs need no levels.
CodingCost of_cocktail(const SyncSettings& settings) {
  return {settings.random * (settings.bits == 1 ? 50 : 72), settings.random * 30};
}

}  // namespace

CodingCost coding_cost(const SyncSettings& settings) {
  if (settings.method == "cocktail") return of_cocktail(settings);
  if (settings.method == "bytegrad") return {.engine = 10, .trainer = 0.9};
  if (settings.method == "onebit_adam") return {.engine = 22, .trainer = 16};
  if (settings.method == "powersgd") {
    const auto rank = static_cast<double>(settings.rank);
    return {1.3 * rank, 1 + 1.2 * rank};
  }
  if (settings.method == "diloco") {
    return once_in(settings.every, Diloco::kEvery, {15, 5});
  }
  if (settings.method == "streaming_diloco") {
    return once_in(settings.every, StreamingDiloco::kEvery, {.engine = 42, .trainer = 10});
  }
  if (settings.method == "noloco") {
    return once_in(settings.every, Noloco::kEvery, {.engine = 20, .trainer = 16});
  }
  return kPlainMeans;
}

}  // namespace strait::sync
