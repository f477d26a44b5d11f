#include "framework/sync/methods.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

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

struct Offer {
  const char* name;
  std::unique_ptr<SyncMethod> (*make)(const SyncSettings&);
};

template <typename Method>
std::unique_ptr<SyncMethod> made(const SyncSettings& settings) {
  return std::make_unique<Method>(settings);
}

constexpr std::array kMethods = {
    Offer{"allreduce", made<Allreduce>}, Offer{"cocktail", made<Cocktail>},
    Offer{"diloco", made<Diloco>},       Offer{"streaming_diloco", made<StreamingDiloco>},
    Offer{"noloco", made<Noloco>},       Offer{"onebit_adam", made<OnebitAdam>},
    Offer{"bytegrad", made<ByteGrad>},   Offer{"powersgd", made<PowerSgd>},
};

}  // namespace

std::vector<std::string> method_names() {
  std::vector<std::string> names;
  names.reserve(kMethods.size());
  for (const Offer& offer : kMethods) names.emplace_back(offer.name);
  return names;
}

std::unique_ptr<SyncMethod> make_method(const SyncSettings& settings) {
  for (const Offer& offer : kMethods) {
    if (settings.method == offer.name) return offer.make(settings);
  }
  throw SyncError(SyncError::Kind::setting,
                  fmt::format("there is no sync method {}; there are {}", settings.method,
                              fmt::join(method_names(), ", ")));
}

}  // namespace strait::sync
