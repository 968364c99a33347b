CREATE LINK newyork TO '127.0.0.1' 7471 USING london '';
