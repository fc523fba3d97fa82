// SPDX-License-Identifier: Apache-2.0
//
// Writes a picture with libpng, which reports errors with longjmp: objects with destructors are outside the function
// that the jump leaves. Format: PNG (third edition), with the chunks PLTE, sRGB and tEXt.
// Read next: picture.h.
#include "picture.h"

#include <png.h>

#include <cstring>
#include <span>
#include <stdexcept>

namespace regard::program {
namespace {

struct PngWriter {
  std::span<png_byte> buffer;
  std::size_t used = 0;
  std::array<char, 128> error{};
};

void write_bytes(png_structp png, png_bytep bytes, std::size_t count) {
  auto* writer = static_cast<PngWriter*>(png_get_io_ptr(png));
  if (count > writer->buffer.size() - writer->used) png_error(png, "the file is larger than expected");
  std::memcpy(writer->buffer.data() + writer->used, bytes, count);
  writer->used += count;
}

[[noreturn]] void fail(png_structp png, png_const_charp what) {
  auto* writer = static_cast<PngWriter*>(png_get_error_ptr(png));
  std::strncpy(writer->error.data(), what, writer->error.size() - 1);
  png_longjmp(png, 1);
}

void ignore_warning(png_structp, png_const_charp) {}

// Has no objects that need a destructor. Returns whether the file is complete.
bool write_png(png_structp png, png_infop info, const Picture& picture, std::span<png_color> colors,
               std::span<png_text> texts, std::span<png_bytep> rows) {
  if (setjmp(png_jmpbuf(png)) != 0) return false;
  png_set_IHDR(png, info, static_cast<png_uint_32>(picture.width), static_cast<png_uint_32>(picture.height), 8,
               PNG_COLOR_TYPE_PALETTE, PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  png_set_sRGB(png, info, PNG_sRGB_INTENT_PERCEPTUAL);
  png_set_PLTE(png, info, colors.data(), static_cast<int>(colors.size()));
  png_set_text(png, info, texts.data(), static_cast<int>(texts.size()));
  png_write_info(png, info);
  png_write_image(png, rows.data());
  png_write_end(png, nullptr);
  return true;
}

}  // namespace

std::string png_of(const Picture& picture) {
  std::vector<png_color> colors;
  for (const Color& color : picture.colors) colors.push_back({color[0], color[1], color[2]});
  std::vector<png_text> texts;
  std::size_t text_bytes = 0;
  std::vector<std::pair<std::string, std::string>> named = picture.texts;  // libpng takes char*
  for (auto& [keyword, text] : named) {
    png_text entry{};
    entry.compression = PNG_TEXT_COMPRESSION_NONE;
    entry.key = keyword.data();
    entry.text = text.data();
    entry.text_length = text.size();
    texts.push_back(entry);
    text_bytes += keyword.size() + text.size() + 16;
  }
  std::vector<std::uint8_t> pixels = picture.pixels;
  std::vector<png_bytep> rows;
  for (Index y = 0; y < picture.height; ++y) rows.push_back(pixels.data() + y * picture.width);

  // Deflate expands incompressible data by less than a thousandth, and libpng adds a few bytes per 8 KiB.
  std::vector<png_byte> buffer(pixels.size() + pixels.size() / 64 + rows.size() + text_bytes + (1 << 14));
  PngWriter writer{.buffer = buffer};
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, &writer, fail, ignore_warning);
  png_infop info = png == nullptr ? nullptr : png_create_info_struct(png);
  bool whole = false;
  if (info != nullptr) {
    png_set_write_fn(png, &writer, write_bytes, nullptr);
    whole = write_png(png, info, picture, colors, texts, rows);
  }
  png_destroy_write_struct(&png, &info);
  if (!whole) throw std::runtime_error(std::string("the picture cannot be created: ") + writer.error.data());
  return {reinterpret_cast<const char*>(buffer.data()), writer.used};
}

}  // namespace regard::program
