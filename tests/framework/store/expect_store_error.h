#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "framework/store/store_error.h"

namespace strait::store {

// The call must be refused with this kind, in a sentence that holds all these words.
inline void expect_store_error(StoreError::Kind kind, const std::vector<std::string>& words,
                               const std::function<void()>& call) {
  try {
    call();
    ADD_FAILURE() << "nothing was thrown; expected: " << testing::PrintToString(words);
  } catch (const StoreError& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    for (const std::string& word : words) {
      EXPECT_THAT(std::string(error.what()), testing::HasSubstr(word));
    }
  }
}

}  // namespace strait::store
