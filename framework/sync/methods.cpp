#include "framework/sync/methods.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "framework/sync/allreduce.h"
#include "framework/sync/bytegrad.h"
#include "framework/sync/cocktail.h"
#include "framework/sync/diloco.h"
#include "framework/sync/noloco.h"
#include "framework/sync/onebit_adam.h"
#include "framework/sync/powersgd.h"
#include "framework/sync/streaming_diloco.h"
#include "framework/sync/sync_error.h"

namespace strait::sync {
namespace {

// Fills in what every built-in method has as static functions.
template <class Method>
MethodOffer offer_of(std::string name, int rank, std::vector<std::string> reads) {
  MethodOffer offer;
  offer.name = std::move(name);
  offer.make = [](const SyncSettings& settings) {
    return std::unique_ptr<SyncMethod>(std::make_unique<Method>(settings));
  };
  offer.reads = std::move(reads);
  offer.forecast = Method::forecast;
  offer.coding_cost = Method::coding_cost;
  offer.rank = rank;
  return offer;
}

MethodOffer allreduce_offer() {
  MethodOffer offer = offer_of<Allreduce>("allreduce", 10, {"wire_dtype"});
  offer.is_exact_sum = true;
  return offer;
}

MethodOffer cocktail_offer() {
  MethodOffer offer = offer_of<Cocktail>(
      "cocktail", 40,
      {"random", "top", "bits", "reference_dtype", "outer_learning_rate", "outer_momentum"});
  offer.strengths = Cocktail::strengths;
  return offer;
}

MethodOffer streaming_diloco_offer() {
  MethodOffer offer = offer_of<StreamingDiloco>(
      "streaming_diloco", 60,
      {"bits", "every", "fragments", "late", "blend", "outer_learning_rate", "outer_momentum"});
  offer.check = StreamingDiloco::check;
  return offer;
}

MethodOffer noloco_offer() {
  MethodOffer offer =
      offer_of<Noloco>("noloco", 80, {"every", "outer_learning_rate", "outer_momentum"});
  offer.needs_all =
      "averages all replicas when the model is read, and no consensus round covers that read";
  return offer;
}

MethodOffer onebit_adam_offer() {
  MethodOffer offer = offer_of<OnebitAdam>("onebit_adam", 30, {"warmup"});
  offer.check = OnebitAdam::check;
  offer.needs_all =
      "applies moments after the consensus round of the step, so the remaining replicas could not "
      "determine which of them has applied them";
  return offer;
}

}  // namespace

SyncSettings settings_in_group(SyncSettings settings) {
  settings.method = "allreduce";
  settings.in_group = true;
  return settings;
}

std::int64_t checked_interval(const SyncSettings& settings, std::int64_t usual) {
  const std::int64_t every = settings.every_or(usual);
  if (every >= 1) return every;
  throw SyncError(SyncError::Kind::setting,
                  fmt::format("{}: every is {}; it must be at least 1", settings.method, every));
}

std::string Strength::text() const { return fmt::format("{}/{}/{}", random, top, bits); }

std::string RecipeFacts::stated(std::string_view key, std::string_view value) const {
  return fmt::format("{} is {} ({})", key, value, where(key));
}

Catalogue<MethodOffer>& methods() {
  // In the order of lists and tables. Ranks follow what methods cost in loss
  // (tests/bench/RESULTS.md), with gaps for plugins.
  static Catalogue<MethodOffer> all(
      "sync method",
      {allreduce_offer(), cocktail_offer(),
       offer_of<Diloco>("diloco", 70,
                        {"wire_dtype", "every", "outer_learning_rate", "outer_momentum"}),
       streaming_diloco_offer(), noloco_offer(), onebit_adam_offer(),
       offer_of<ByteGrad>("bytegrad", 20, {}), offer_of<PowerSgd>("powersgd", 50, {"rank"})});
  return all;
}

std::vector<std::string> method_names() { return methods().names(); }

std::unique_ptr<SyncMethod> make_method(const SyncSettings& settings) {
  if (const MethodOffer* offer = methods().find(settings.method)) return offer->make(settings);
  throw SyncError(SyncError::Kind::setting,
                  fmt::format("there is no sync method {}; there are {}", settings.method,
                              fmt::join(method_names(), ", ")));
}

}  // namespace strait::sync
