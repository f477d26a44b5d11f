#pragma once

#include "framework/sync/methods.h"

namespace strait::sync {

// The settings of a recipe that names the method and nothing else.
inline SyncSettings usual(const std::string& method) {
  SyncSettings settings;
  settings.method = method;
  return settings;
}

}  // namespace strait::sync
