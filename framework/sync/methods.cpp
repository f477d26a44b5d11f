#include "framework/sync/methods.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

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

template <typename Method>
std::unique_ptr<SyncMethod> made(const SyncSettings& settings) {
  return std::make_unique<Method>(settings);
}

}  // namespace

Catalogue<MethodOffer>& methods() {
  static Catalogue<MethodOffer> all(
      "sync method",
      {{"allreduce", made<Allreduce>, {"wire_dtype"}},
       {"cocktail",
        made<Cocktail>,
        {"random", "top", "bits", "reference_dtype", "outer_learning_rate", "outer_momentum"}},
       {"diloco", made<Diloco>, {"wire_dtype", "every", "outer_learning_rate", "outer_momentum"}},
       {"streaming_diloco",
        made<StreamingDiloco>,
        {"bits", "every", "fragments", "late", "blend", "outer_learning_rate", "outer_momentum"}},
       {"noloco",
        made<Noloco>,
        {"every", "outer_learning_rate", "outer_momentum"},
        32,
        "makes its mean when somebody looks at the model, which nobody votes on"},
       {"onebit_adam",
        made<OnebitAdam>,
        {"warmup"},
        32,
        "lands moments behind the vote on the step, so that those who are left could not tell who "
        "has landed them"},
       {"bytegrad", made<ByteGrad>, {}},
       {"powersgd", made<PowerSgd>, {"rank"}}});
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
