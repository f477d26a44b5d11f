#include <gtest/gtest.h>

#include "launcher/base/own_program.h"

namespace strait::base {
namespace {

TEST(HubName, IsOwnerAndName) {
  for (const char* text :
       {"acme/Tiny-1.5B_x", "hf://acme/Tiny-1.5B_x", "https://huggingface.co/acme/Tiny-1.5B_x"}) {
    EXPECT_EQ(hub_name(text), "acme/Tiny-1.5B_x") << text;
  }
  for (const char* text :
       {"", "gpt2", "/a/b", "./a", "../a", "a/b/c", "a/", "/b", "a b/c", "~/model"}) {
    EXPECT_EQ(hub_name(text), std::nullopt) << text;
  }
}

TEST(DownloadAdvice, EndsWithACommand) {
  EXPECT_TRUE(
      download_advice("a/b").ends_with("hub, download it with: hf download a/b --local-dir a/b"));
  EXPECT_TRUE(download_advice("a/b", "--repo-type dataset")
                  .ends_with(": hf download a/b --repo-type dataset --local-dir a/b"));
  EXPECT_TRUE(
      download_advice("hf://a/b")
          .ends_with("name a/b here, and download that with: hf download a/b --local-dir a/b"));
  EXPECT_TRUE(
      download_advice("my models").ends_with(": hf download OWNER/NAME --local-dir 'my models'"));
}

}  // namespace
}  // namespace strait::base
