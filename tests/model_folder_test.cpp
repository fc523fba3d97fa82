// SPDX-License-Identifier: Apache-2.0
//
// Models on disk: one file or shards with their index, read or mapped; file names that refer to something other than a
// regular file; an index that refers to other folders or contradicts its shards; a file that changes while it is read.
// Read next: src/io/model_folder.cpp.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <stdexcept>
#include <thread>

#include "regard/io/safetensors.h"
#include "regard/io/sha256.h"
#include "support/model_bytes.h"
#include "support/rejection.h"

namespace regard::model_folder_test {
namespace {

std::string folder_rejection(const std::string& folder, const ModelFileOptions& options = {}) {
  return rejection<std::runtime_error>([&] { Checkpoint::read_folder(folder, options); });
}

// One float32 tensor of three elements.
std::string shard(const std::string& tensor, float first) {
  return safetensors_bytes("{\"" + tensor + "\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]}}",
                           bytes_of<float>({first, first + 1, first + 2}));
}
constexpr const char* kIndex = "model.safetensors.index.json";

TEST(ModelFolder, ReadsOrMapsASingleFile) {
  const TestFolder folder;
  const std::string bytes = shard("w", 1);
  const std::string path = folder.write("model.safetensors", bytes);
  for (bool map : {false, true}) {
    const Checkpoint checkpoint = Checkpoint::read_folder(folder.path(), {.map = map});
    EXPECT_EQ(checkpoint.name(), path);
    ASSERT_EQ(checkpoint.tensors().size(), 1u);
    EXPECT_EQ(checkpoint.read_float32(checkpoint.tensors()[0]), (std::vector<float>{1, 2, 3}));
    EXPECT_EQ(checkpoint.share_float32(checkpoint.tensors()[0]).get()[1], 2.0f);
    EXPECT_EQ(checkpoint.sha256(), sha256(std::as_bytes(std::span(bytes))));
  }
  // Elements that were read are aligned and not copied, wherever the header ends.
  const Checkpoint checkpoint = Checkpoint::read_file(path);
  const StoredTensor& w = checkpoint.tensors()[0];
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(w.bytes.data()) % 64, 0u);
  EXPECT_EQ(static_cast<const void*>(checkpoint.share_float32(w).get()), static_cast<const void*>(w.bytes.data()));
}

TEST(ModelFolder, ReadsShards) {
  const TestFolder folder;
  const std::string first = shard("b", 10);
  const std::string second = shard("a", 20);
  folder.write("model-1.safetensors", first);
  folder.write("model-2.safetensors", second);
  folder.write(kIndex, R"({"metadata":{"total_size":24},)"
                       R"("weight_map":{"b":"model-1.safetensors","a":"model-2.safetensors"}})");
  const Checkpoint checkpoint = Checkpoint::read_folder(folder.path());
  EXPECT_EQ(checkpoint.name(), folder / kIndex);
  ASSERT_EQ(checkpoint.tensors().size(), 2u);
  EXPECT_EQ(checkpoint.tensors()[0].name, "a");
  EXPECT_EQ(checkpoint.read_float32(*checkpoint.find("a")), (std::vector<float>{20, 21, 22}));
  EXPECT_EQ(checkpoint.read_float32(*checkpoint.find("b")), (std::vector<float>{10, 11, 12}));
  const std::string lines = sha256(std::as_bytes(std::span(first))) + "  model-1.safetensors\n" +
                            sha256(std::as_bytes(std::span(second))) + "  model-2.safetensors\n";
  EXPECT_EQ(checkpoint.sha256(), sha256(std::as_bytes(std::span(lines))));
}

TEST(ModelFolder, ReportsMissingFiles) {
  const TestFolder folder;
  EXPECT_EQ(folder_rejection(folder.path()),
            folder.path() + ": contains neither model.safetensors nor model.safetensors.index.json");
  folder.write("pytorch_model.bin", "x");
  EXPECT_EQ(folder_rejection(folder.path()),
            folder.path() +
                ": contains neither model.safetensors nor model.safetensors.index.json; pytorch_model.bin is a Python "
                "pickle, which is never read; save the model as safetensors");
  EXPECT_EQ(folder_rejection("/nowhere"),
            "/nowhere: cannot be opened: No such file or directory; expected a model folder");
  const std::string file = folder.write("file", "x");
  EXPECT_EQ(folder_rejection(file), file + ": is not a folder; expected a model folder");
}

TEST(ModelFolder, FollowsSymbolicLinks) {
  const TestFolder blobs;
  const TestFolder folder;
  blobs.write("53aa51172d", shard("w", 1));
  std::filesystem::create_symlink(blobs / "53aa51172d", folder / "model.safetensors");
  EXPECT_EQ(Checkpoint::read_folder(folder.path()).tensors().size(), 1u);
}

// None of these is opened, so none can block.
TEST(ModelFolder, RejectsAnythingButRegularFiles) {
  const TestFolder folder;
  const std::string path = folder / "model.safetensors";
  const auto with = [&](auto make) {
    std::filesystem::remove_all(path);
    make();
    return folder_rejection(folder.path());
  };
  EXPECT_EQ(with([&] { ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0); }), path + ": is a named pipe; expected a file");
  EXPECT_EQ(with([&] { std::filesystem::create_directory(path); }), path + ": is a folder; expected a file");
  EXPECT_EQ(with([&] { std::filesystem::create_symlink("/dev/zero", path); }), path + ": is a device; expected a file");
  EXPECT_EQ(with([&] { std::filesystem::create_symlink("nowhere", path); }),
            path + ": cannot be opened: No such file or directory");
  EXPECT_EQ(with([&] { std::filesystem::create_symlink("model.safetensors", path); }),
            path + ": cannot be opened: Too many levels of symbolic links");
  EXPECT_EQ(with([&] { folder.write("model.safetensors", ""); }),
            path + ": byte 0: the file is empty; expected safetensors");

  const auto open = [](const std::string& name) {
    return rejection<std::runtime_error>([&] { Checkpoint::read_file(name); });
  };
  EXPECT_EQ(open(folder / "none"), (folder / "none") + ": cannot be opened: No such file or directory");
  EXPECT_EQ(open(folder / std::string(5000, 'x')),
            folder / std::string(5000, 'x') + ": cannot be opened: File name too long");
  EXPECT_EQ(open(folder / "\xff\xe2\x80\xae"),
            folder / "\\x{ff}\\u{202e}" + ": cannot be opened: No such file or directory");
  EXPECT_EQ(open(folder / std::string("a\0b", 3)), folder / "a\\u{0}b" + ": the path contains a NUL character");
  // A file with such a name is readable.
  folder.write("\xff", shard("w", 1));
  EXPECT_EQ(open(folder / "\xff"), "accepted");
}

TEST(ModelFolder, DoesNotOpenShardsOutsideTheFolder) {
  const TestFolder folder;
  const std::string path = folder / kIndex;
  const auto named = [&](std::string_view file) {
    return rejection<std::runtime_error>(
        [&] { read_shard_index("{\"weight_map\":{\"w\":\"" + std::string(file) + "\"}}", path); });
  };
  for (const char* name : {"../a.safetensors", "/etc/passwd.safetensors", "/etc/passwd", "..", ".", "", "a",
                           "sub/a.safetensors", ".a.safetensors", "a.bin", "./a.safetensors"}) {
    EXPECT_EQ(named(name),
              path + ": byte 19: \"" + name + "\" is not the plain name of a .safetensors file in the same folder");
  }
  EXPECT_EQ(
      named("a\\u0000.safetensors"),
      path + ": byte 19: \"a\\u{0}.safetensors\" is not the plain name of a .safetensors file in the same folder");
  EXPECT_EQ(
      named("a\\n.safetensors"),
      path + ": byte 19: \"a\\u{a}.safetensors\" is not the plain name of a .safetensors file in the same folder");
  EXPECT_TRUE(named(std::string(250, 'a') + ".safetensors").find("is not the plain name") != std::string::npos);
  EXPECT_EQ(named("größe-00001.safetensors"), "accepted");
}

TEST(ModelFolder, ReadsTheShardIndex) {
  const auto read = [](std::string_view text) {
    return rejection<std::runtime_error>([&] { read_shard_index(text, "i"); });
  };
  EXPECT_EQ(read("[]"), "i: byte 0: the shard index must be an object");
  EXPECT_EQ(read("{}"), "i: byte 0: the shard index has no weight_map, which maps tensors to files");
  EXPECT_EQ(read(R"({"weight_map":[]})"), "i: byte 0: the shard index has no weight_map, which maps tensors to files");
  EXPECT_EQ(read(R"({"weight_map":{"w":3}})"), "i: byte 19: the file of tensor \"w\" must be a string");
  EXPECT_EQ(read(R"({"weight_map":{"w":"a.safetensors","w":"b.safetensors"}})"),
            "i: byte 35: the name \"w\" occurs twice in one object");
  EXPECT_EQ(read("{\"a\":" + std::string(33, '[')), "i: byte 36: nested deeper than 32");
  EXPECT_TRUE(read("{").starts_with("i: byte 1: syntax error"));
}

TEST(ModelFolder, RejectsMismatchOfIndexAndShards) {
  const TestFolder folder;
  folder.write("one.safetensors", shard("a", 1));
  folder.write("two.safetensors", shard("b", 2));
  const std::string path = folder / kIndex;
  const auto mapped = [&](const std::string& map) {
    folder.write(kIndex, "{\"weight_map\":{" + map + "}}");
    return folder_rejection(folder.path());
  };
  const std::string both = R"("a":"one.safetensors","b":"two.safetensors")";
  EXPECT_EQ(mapped(both), "accepted");
  EXPECT_EQ(mapped(both + R"(,"c":"two.safetensors","d":"one.safetensors")"),
            path + ": tensors in the index but in no shard: \"c\", \"d\"");
  EXPECT_EQ(mapped(R"("b":"one.safetensors","a":"two.safetensors")"),
            path + ": tensor \"b\" should be in one.safetensors according to the index, but is in two.safetensors");
  EXPECT_EQ(mapped(both + R"(,"c":"three.safetensors")"),
            folder / "three.safetensors" + ": cannot be opened: No such file or directory");
  std::filesystem::create_directory(folder / "four.safetensors");
  EXPECT_EQ(mapped(both + R"(,"c":"four.safetensors")"),
            folder / "four.safetensors" + ": is a folder; expected a file");
  std::filesystem::create_symlink("/dev/zero", folder / "five.safetensors");
  EXPECT_EQ(mapped(both + R"(,"c":"five.safetensors")"),
            folder / "five.safetensors" + ": is a device; expected a file");
  EXPECT_EQ(mapped(""), "accepted");

  folder.write("two.safetensors", safetensors_bytes(R"({"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                                    R"("\u202ec":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                                                    "xy"));
  EXPECT_EQ(mapped(both), path + ": tensors in the shards but not in the index: \"\\u{202e}c\"");
  folder.write("two.safetensors", shard("a", 2));
  EXPECT_EQ(mapped(both), path + ": tensor \"a\" is in two shards, one.safetensors and two.safetensors");
}

TEST(ModelFolder, RejectsTooManyShards) {
  const TestFolder folder;
  std::string map;
  for (int i = 0; i <= 4096; ++i) {
    map += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":\"" + std::to_string(i) + ".safetensors\"";
  }
  folder.write(kIndex, "{\"weight_map\":{" + map + "}}");
  EXPECT_EQ(folder_rejection(folder.path()), folder / kIndex + ": lists 4097 shards; the limit is 4096");
}

TEST(ModelFolder, ChecksMemoryBeforeAllocating) {
  const TestFolder folder;
  const std::string path = folder.write("model.safetensors", shard("w", 1));
  // Three times the header, plus the data.
  const std::uint64_t header = shard("w", 1).size() - 8 - 12;
  const std::uint64_t needed = 3 * header + 12;
  EXPECT_EQ(folder_rejection(folder.path(), {.max_memory_bytes = needed}), "accepted");
  EXPECT_EQ(folder_rejection(folder.path(), {.max_memory_bytes = needed - 1}),
            path + ": needs " + std::to_string(needed) + " bytes of memory; " + std::to_string(needed - 1) +
                " are available");
  EXPECT_EQ(folder_rejection(folder.path(), {.map = true, .max_memory_bytes = 3 * header}), "accepted");

  // A sparse file of 1 TiB takes no disk space, but reading it would take that much memory.
  const std::uint64_t terabyte = std::uint64_t{1} << 40;
  const std::string text = "{\"w\":{\"dtype\":\"U8\",\"shape\":[1099511627776],\"data_offsets\":[0,1099511627776]}}";
  folder.write("model.safetensors", safetensors_bytes(text, ""));
  std::error_code unsupported;
  std::filesystem::resize_file(path, 8 + text.size() + terabyte, unsupported);
  if (!unsupported) {
    const std::string rejected = folder_rejection(folder.path());
    EXPECT_TRUE(
        rejected.starts_with(path + ": needs " + std::to_string(terabyte + 3 * text.size()) + " bytes of memory; "))
        << rejected;
  }

  std::filesystem::remove(path);
  folder.write("one.safetensors", shard("a", 1));
  folder.write("two.safetensors", shard("b", 2));
  folder.write(kIndex, R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})");
  const std::uint64_t sum = 2 * shard("a", 1).size();
  EXPECT_EQ(folder_rejection(folder.path(), {.max_memory_bytes = sum - 1}),
            folder.path() + ": needs " + std::to_string(sum) + " bytes of memory; " + std::to_string(sum - 1) +
                " are available");
}

// Repeatedly written to and truncated while it is read: an error, or as many elements as the header says.
TEST(ModelFolder, DetectsFilesThatChange) {
  const TestFolder folder;
  const std::size_t count = 1 << 16;
  const auto made_of = [&](float number) {
    const std::string size = std::to_string(count);
    return safetensors_bytes(
        "{\"w\":{\"dtype\":\"F32\",\"shape\":[" + size + "],\"data_offsets\":[0," + std::to_string(4 * count) + "]}}",
        bytes_of(std::vector<float>(count, number)));
  };
  const std::string path = folder.write("model.safetensors", made_of(0));
  std::atomic<bool> done = false;
  std::thread writer([&] {
    for (int round = 1; !done; ++round) {
      std::filesystem::resize_file(path, 1000);
      folder.write("model.safetensors", made_of(static_cast<float>(round)));
    }
  });
  int rejected = 0;
  for (int n = 0; n < 300 || (rejected == 0 && n < 100'000); ++n) {
    try {
      const Checkpoint checkpoint = Checkpoint::read_file(path);
      const std::vector<float> numbers = checkpoint.read_float32(checkpoint.tensors()[0]);
      ASSERT_EQ(numbers.size(), count);
    } catch (const std::runtime_error& error) {
      EXPECT_TRUE(std::string_view(error.what()).starts_with(path + ": ")) << error.what();
      ++rejected;
    }
  }
  done = true;
  writer.join();
  EXPECT_GT(rejected, 0);
  EXPECT_EQ(rejection<std::runtime_error>([&] { Checkpoint::read_file(path); }), "accepted");
}

TEST(ModelFolder, ReadsTextFiles) {
  const TestFolder folder;
  const auto read = [&](std::string_view bytes, std::uint64_t max_bytes = 1000) {
    folder.write("config.json", bytes);
    return rejection<std::runtime_error>(
        [&] { EXPECT_EQ(read_model_text(folder.path(), "config.json", max_bytes), bytes); });
  };
  const std::string path = folder / "config.json";
  EXPECT_EQ(read("{\"größe\": 1}"), "accepted");
  EXPECT_EQ(read(""), "accepted");
  EXPECT_EQ(read(std::string(11, 'x'), 10), path + ": has 11 bytes; the limit is 10");
  EXPECT_EQ(read("a\xff"), path + ": byte 1: not valid UTF-8");
  EXPECT_EQ(read("version https://git-lfs.github.com/spec/v1\n"),
            path + ": byte 0: this is a Git LFS pointer, not text; run git lfs pull to fetch the file");
  EXPECT_EQ(read("<!doctype html>"),
            path + ": byte 0: this is an HTML page, not text, perhaps a server error; fetch the file again");
  std::filesystem::remove(path);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(rejection<std::runtime_error>([&] { read_model_text(folder.path(), "config.json", 10); }),
            path + ": is a named pipe; expected a file");
  EXPECT_EQ(rejection<std::runtime_error>([&] { read_model_text(folder.path() + "/", "none", 10); }),
            folder / "none" + ": cannot be opened: No such file or directory");
}

}  // namespace
}  // namespace regard::model_folder_test
