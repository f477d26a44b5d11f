#include "framework/sync/methods.h"

#include <fmt/ranges.h>

#include "framework/sync/sync_error.h"

namespace strait::sync {
// Each is a source of its own in methods/.
MethodOffer allreduce();
MethodOffer cocktail();
MethodOffer diloco();
MethodOffer streaming_diloco();
MethodOffer noloco();
MethodOffer onebit_adam();
MethodOffer bytegrad();
MethodOffer powersgd();

SyncSettings settings_in_group(SyncSettings settings) {
  settings.method = "allreduce";
  settings.in_group = true;
  return settings;
}

std::int64_t checked_interval(const SyncSettings& settings, std::int64_t usual) {
  const std::int64_t every = settings.every_or(usual);
  if (every >= 1) return every;
  throw SyncError(SyncError::Kind::setting, "{}: every is {}; it must be at least 1",
                  settings.method, every);
}

std::string Strength::text() const { return fmt::format("{}/{}/{}", random, top, bits); }

std::string RecipeFacts::stated(std::string_view key, std::string_view value) const {
  return fmt::format("{} is {} ({})", key, value, where(key));
}

Catalogue<MethodOffer>& methods() {
  // In the order of lists and tables. Ranks follow what methods cost in loss
  // (tests/bench/RESULTS.md), with gaps for plugins.
  static Catalogue<MethodOffer> all(
      "sync method", {allreduce(), cocktail(), diloco(), streaming_diloco(), noloco(),
                      onebit_adam(), bytegrad(), powersgd()});
  return all;
}

std::vector<std::string> method_names() { return methods().names(); }

std::unique_ptr<SyncMethod> make_method(const SyncSettings& settings) {
  if (const MethodOffer* offer = methods().find(settings.method)) return offer->make(settings);
  throw SyncError(SyncError::Kind::setting, "there is no sync method {}; there are {}",
                  settings.method, fmt::join(method_names(), ", "));
}

}  // namespace strait::sync
